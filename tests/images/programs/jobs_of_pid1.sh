# A shell that is PID 1, has jobs and waits for them: what it says must not depend on who watches it.
train < /dev/null > /opt/ml/output/train.log 2>&1 &
TRAIN=$!
until grep -qs "PID 1 of this container" /opt/ml/output/train.log && [ -e /opt/ml/model/ready ]; do sleep 0.05; done
tracer() { awk '/^TracerPid/ { print $2 }' /proc/1/status; }
echo "traced $([ "$(tracer)" = 0 ] && echo no || echo yes)" > /opt/ml/output/traced

echo "== jobs"
sleep 100 & SLEEPS=$!
kill -STOP $SLEEPS
wait $SLEEPS; echo "stopped: $?"
jobs
bg %sleep; kill -TERM $SLEEPS; wait $SLEEPS; echo "ended: $?"
bash -c 'kill -STOP $$; exit 5'; echo "suspended: $?"
jobs %bash
fg %bash; echo "went on: $?"
bash -c 'kill -TSTP $$; exit 6'; echo "suspended: $?"
fg %bash; echo "went on: $?"
[ "$1" = killed ] && kill -KILL "$(tracer)"

echo "== codes"
(exit 7) & wait $!; echo "seven: $?"
bash -c 'kill -KILL $$'; echo "killed: $?"
bash -c 'kill -SEGV $$'; echo "fault: $?"
false | true; echo "pipe: ${PIPESTATUS[*]}"
nowhere 2> /dev/null; echo "none: $?"
trap 'echo "usr1 heard"' USR1; kill -USR1 $$; sleep 0.1 & wait $!; echo "waited: $?"
trap 'children=$((children + 1))' CHLD; for each in 1 2 3; do (exit $each); done; trap - CHLD; echo "children: $children"
read -t 0.2 nothing < /dev/tty; echo "read: $?"
kill -TSTP $$; echo "still here"

echo "== zombies"
for each in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.1 & exec true); done
until ! grep -qs "^sleep" /proc/[0-9]*/comm; do sleep 0.05; done
grep -h "^State:.Z" /proc/[0-9]*/status | wc -l

touch /opt/ml/model/go
wait $TRAIN; echo "train: $?"
echo "traced $([ "$(tracer)" = 0 ] && echo no || echo yes)" >> /opt/ml/output/traced
exit 9
