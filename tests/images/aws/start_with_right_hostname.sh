#!/usr/bin/env bash

if [[ "$1" = "train" ]]; then
    HOST=$(jq .current_host /opt/ml/input/config/resourceconfig.json)
    sed -ie "s/PLACEHOLDER_HOSTNAME/$HOST/g" changehostname.c
    gcc -o libchangehostname.so -shared -fPIC -Wall changehostname.c
    LD_PRELOAD=/libchangehostname.so train
else
    eval "$@"
fi
