{{- /* The pods of both kinds: no rights, no token, nothing that can be written but its volumes. */ -}}
{{- define "musterpoint.pod" -}}
automountServiceAccountToken: false   # musterpoint asks Kubernetes nothing
restartPolicy: Never
terminationGracePeriodSeconds: {{ .Values.grace }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.user }}
  runAsGroup: {{ .Values.user }}
  fsGroup: {{ .Values.user }}
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: train
    image: {{ .Values.image | quote }}
    workingDir: {{ .Values.workingDir | quote }}
    command: {{ toJson .Values.command }}
    args:
      {{- range .Values.program }}
      - {{ . | toString | quote }}
      {{- end }}
    env:
      - name: MUSTER_NNODES
        value: {{ .Values.nodes | quote }}
      - name: MUSTER_STOP_GRACE
        value: {{ sub .Values.grace 15 | quote }}   # less what a report takes
      {{- with .Values.slots }}
      - name: MUSTER_SLOTS
        value: {{ . | toString | quote }}
      {{- end }}
      {{- with .Values.secret }}
      - name: MUSTER_SECRET
        valueFrom:
          secretKeyRef:
            name: {{ . | quote }}
            key: secret
      {{- end }}
      - name: HOME
        value: /tmp
      {{- with .Values.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    resources: {{ toYaml .Values.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    terminationMessagePath: /dev/termination-log
    volumeMounts:
      - name: ml
        mountPath: /opt/ml
      - name: tmp
        mountPath: /tmp
      - name: shm
        mountPath: /dev/shm
volumes:
  - name: ml
    {{- toYaml .Values.opt | nindent 4 }}
  - name: tmp
    emptyDir: {}
  - name: shm
    emptyDir:
      medium: Memory
      sizeLimit: {{ .Values.shm }}
{{- end }}
