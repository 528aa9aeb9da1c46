{{/* (root, component): labels and annotations of a pod. */}}
{{- define "stagecoach.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "stagecoach.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
  {{- with $root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* (root, "sidecars" or ""): the containers of a node's stages. */}}
{{- define "stagecoach.stageContainers" -}}
{{- range $i := until (int (index . 0).Values.stagesPerNode) }}
- {{- include "stagecoach.stageContainer" (list (index $ 0) $i) | nindent 2 }}
  {{- if index $ 1 }}
  restartPolicy: Always
  {{- else }}
  # A pipeline that is deleted as a whole must hear of that first from its router's end, not from a worker that leaves.
  lifecycle:
    preStop:
      sleep: {seconds: {{ add (index $ 0).Values.router.deregisterSeconds 5 }}}
  {{- end }}
{{- end }}
{{- end }}

{{/* (root, has router, has stages): a pod's spec without its containers. */}}
{{- define "stagecoach.podSpec" -}}
{{- $root := index . 0 }}
{{- $has_router := index . 1 }}
{{- $has_stages := index . 2 }}
{{- with $root.Values -}}
serviceAccountName: {{ include "stagecoach.serviceAccount" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .runAsUser | int }}
  runAsGroup: {{ .runAsUser | int }}
  fsGroup: {{ .runAsUser | int }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- /* A worker that gets SIGTERM while its router stops waits until the streams have finished, so it needs the same time. */}}
terminationGracePeriodSeconds: {{ add .router.deregisterSeconds .router.longestStreamSeconds 60 }}
{{- with .image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and $has_stages (eq .device "cuda") }}
resourceClaims:
  - name: gpus
    resourceClaimTemplateName: {{ default (printf "%s-gpus" (include "stagecoach.fullname" $root)) .gpu.existingClaimTemplate }}
{{- end }}
volumes:
  - name: model
    {{- if .model.volume }}
    {{- toYaml .model.volume | nindent 4 }}
    {{- else }}
    persistentVolumeClaim: {claimName: {{ .model.existingClaim }}, readOnly: true}
    {{- end }}
  - name: tmp
    emptyDir: {sizeLimit: 64Mi}
  - name: internal
    secret: {secretName: {{ include "stagecoach.internalSecret" $root }}, defaultMode: 0440}
  {{- with .internal.tls.existingSecret }}
  - name: internal-tls
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
  {{- if $has_stages }}
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: {{ .sharedMemory }}}
  {{- end }}
  {{- if and $has_router .auth.existingSecret }}
  - name: auth
    secret: {secretName: {{ .auth.existingSecret }}, defaultMode: 0440}
  {{- end }}
  {{- if and $has_router .tls.existingSecret }}
  - name: tls
    secret: {secretName: {{ .tls.existingSecret }}, defaultMode: 0440}
  {{- end }}
  {{- if and $has_router .router.journal.volume }}
  - name: journal
    {{- toYaml .router.journal.volume | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
