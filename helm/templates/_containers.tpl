{{- define "stagecoach.securityContext" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Addresses of the stages, in stage order. */}}
{{- define "stagecoach.stages" -}}
{{- $addresses := list }}
{{- range $node := until (int .Values.nodes) }}
{{- range $i := until (int $.Values.stagesPerNode) }}
{{- $host := "127.0.0.1" }}
{{- if $.Values.leaderWorkerSet.enabled }}
{{- /* Pods of this leader's group: workers are named after the leader with a number, the leader without one. */}}
{{- $host = printf "$(POD_NAME)%s.%s.%s.svc" (ternary "" (printf "-%d" $node) (eq $node 0)) (include "stagecoach.groups" $) $.Release.Namespace }}
{{- else if gt (int $.Values.nodes) 1 }}
{{- $host = printf "%s-%d.%s.%s.svc" (include "stagecoach.workers" $) $node (include "stagecoach.workers" $) $.Release.Namespace }}
{{- end }}
{{- $addresses = append $addresses (printf "%s:%d" $host (add (int $.Values.worker.port) $i)) }}
{{- end }}
{{- end }}
{{- join "," $addresses }}
{{- end }}

{{/* Number of failures allowed to a probe with a period of 10 s: the time within which the pipeline must be loaded. */}}
{{- define "stagecoach.startupProbes" -}}
{{- $load := divf (mulf .Values.model.sizeGiB 1024) .Values.model.readMiBPerSecond }}
{{- divf (addf .Values.startupSeconds $load) 10 | ceil | int }}
{{- end }}

{{/* Flags for authentication between router and workers. */}}
{{- define "stagecoach.internal" -}}
- --secret-file=/etc/stagecoach/internal/secret
{{- with .Values.internal.tls }}
{{- if .existingSecret }}
- --internal-tls-cert=/etc/stagecoach/internal-tls/tls.crt
- --internal-tls-key=/etc/stagecoach/internal-tls/tls.key
- --internal-tls-ca=/etc/stagecoach/internal-tls/ca.crt
{{- with .name }}
- --internal-tls-name={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "stagecoach.internalMounts" -}}
- {name: internal, mountPath: /etc/stagecoach/internal, readOnly: true}
{{- if .Values.internal.tls.existingSecret }}
- {name: internal-tls, mountPath: /etc/stagecoach/internal-tls, readOnly: true}
{{- end }}
{{- end }}

{{/* Flags for logs and traces, shared by router and workers. */}}
{{- define "stagecoach.observing" -}}
- --log-format={{ .Values.logFormat }}
{{- with .Values.tracing.endpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- end }}

{{/* The kubelet probes gRPC only without TLS, and HTTPS without checking the certificate. */}}
{{- define "stagecoach.probeScheme" -}}
{{- if .Values.tls.existingSecret }}, scheme: HTTPS{{ end }}
{{- end }}

{{/* The URLs of journal and KV store are in the environment, because everybody on the node can read a process's flags. The
journal's name is that of the pipeline, whichever pod runs it. */}}
{{- define "stagecoach.routerEnv" -}}
{{- if .Values.leaderWorkerSet.enabled }}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
{{- end }}
{{- if .Values.kvEvents.enabled }}
- name: POD_IP
  valueFrom:
    fieldRef: {fieldPath: status.podIP}
{{- end }}
{{- with .Values.kvTiers.store.existingSecret }}
- name: STAGECOACH_KV_STORE
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: url}
{{- end }}
{{- with .Values.router.journal }}
{{- if .existingSecret }}
- name: JOURNAL_URL
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret }}, key: url}
- name: STAGECOACH_JOURNAL
  value: $(JOURNAL_URL)?name={{ $.Release.Namespace }}.{{ ternary "$(POD_NAME)" (include "stagecoach.fullname" $) $.Values.leaderWorkerSet.enabled }}
{{- else if .volume }}
- {name: STAGECOACH_JOURNAL, value: /var/lib/stagecoach/journal}
{{- end }}
{{- end }}
{{- end }}

{{- define "stagecoach.kvEvents" -}}
{{- if .Values.kvEvents.enabled }}
{{- $model := default (base (printf "%s/%s" .Values.model.mountPath .Values.model.path)) .Values.model.name }}
- --kv-events=tcp://*:{{ .Values.kvEvents.port }}
{{- with .Values.kvEvents.replayPort }}
- --kv-events-replay=tcp://*:{{ . }}
{{- end }}
- --kv-events-topic={{ default (printf "kv@$(POD_IP):%v@%s" .Values.router.httpPort $model) .Values.kvEvents.topic }}
{{- end }}
{{- end }}

{{- define "stagecoach.routerContainer" -}}
{{- with .Values.router -}}
name: router
image: {{ include "stagecoach.image" (list $ "router") }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
command: [stagecoach-router]
args:
  - --model={{ $.Values.model.mountPath }}{{ with $.Values.model.path }}/{{ . }}{{ end }}
  - --stages={{ include "stagecoach.stages" $ }}
  - --http=0.0.0.0:{{ .httpPort }}
  - --grpc={{ ternary (printf "0.0.0.0:%v" .grpcPort) "off" $.Values.service.grpc }}
  - --metrics=0.0.0.0:{{ .metricsPort }}
  - --log-level={{ .logLevel }}
  {{- include "stagecoach.internal" $ | nindent 2 }}
  {{- include "stagecoach.observing" $ | nindent 2 }}
  {{- with $.Values.tracing.endpoint }}
  - --trace-sample-ratio={{ $.Values.tracing.sampleRatio }}
  {{- end }}
  - --dtype={{ $.Values.model.dtype }}
  - --kv-dtype={{ $.Values.model.kvDtype }}
  - --hidden-dtype={{ $.Values.model.hiddenDtype }}
  - --max-model-len={{ $.Values.model.maxModelLen | int }}
  {{- with .maxSequences }}
  - --max-sequences={{ . | int }}
  {{- end }}
  {{- with .maxBatchedTokens }}
  - --max-batched-tokens={{ . | int }}
  {{- end }}
  - --recovery-limit={{ .recoverySeconds | int }}
  - --max-waiting={{ .maxWaiting | int }}
  - --max-waiting-tokens={{ .maxWaitingTokens | int64 }}
  {{- with .microbatches }}
  - --microbatches={{ . | int }}
  {{- end }}
  {{- with $.Values.model.name }}
  - --served-name={{ . }}
  {{- end }}
  {{- with $.Values.worker.kvMemory }}
  - --kv-memory={{ . }}
  {{- end }}
  {{- with $.Values.kvTiers.hostMemory }}
  - --host-kv={{ . }}
  {{- end }}
  {{- if $.Values.auth.existingSecret }}
  - --api-keys=/etc/stagecoach/auth/api-keys
  {{- end }}
  {{- if $.Values.tls.existingSecret }}
  - --tls-cert=/etc/stagecoach/tls/tls.crt
  - --tls-key=/etc/stagecoach/tls/tls.key
  {{- end }}
  {{- with include "stagecoach.kvEvents" $ | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "stagecoach.routerEnv" $ | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
ports:
  - {name: http, containerPort: {{ .httpPort }}}
  {{- if $.Values.service.grpc }}
  - {name: grpc, containerPort: {{ .grpcPort }}}
  {{- end }}
  - {name: metrics, containerPort: {{ .metricsPort }}}
  {{- if $.Values.kvEvents.enabled }}
  - {name: kv-events, containerPort: {{ $.Values.kvEvents.port }}}
  {{- with $.Values.kvEvents.replayPort }}
  - {name: kv-replay, containerPort: {{ . }}}
  {{- end }}
  {{- end }}
# No port listens before every stage is loaded and has joined.
startupProbe:
  httpGet: {path: /ready, port: http{{ include "stagecoach.probeScheme" $ }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: {{ include "stagecoach.startupProbes" $ }}
# Ready: every stage's stream is up, and the router accepts requests. If a stage is lost, the router is not
# ready until the container that the kubelet starts again has loaded and joined.
readinessProbe:
  httpGet: {path: /ready, port: http{{ include "stagecoach.probeScheme" $ }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
# Checks only this process: /metrics answers even if the scheduler is late.
livenessProbe:
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
lifecycle:
  preStop:
    sleep: {seconds: {{ .deregisterSeconds }}}
{{ include "stagecoach.securityContext" $ }}
resources:
  {{- toYaml .resources | nindent 2 }}
volumeMounts:
  - {name: model, mountPath: {{ $.Values.model.mountPath }}, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- include "stagecoach.internalMounts" $ | nindent 2 }}
  {{- if $.Values.auth.existingSecret }}
  - {name: auth, mountPath: /etc/stagecoach/auth, readOnly: true}
  {{- end }}
  {{- if $.Values.tls.existingSecret }}
  - {name: tls, mountPath: /etc/stagecoach/tls, readOnly: true}
  {{- end }}
  {{- if .journal.volume }}
  - {name: journal, mountPath: /var/lib/stagecoach}
  {{- end }}
{{- end }}
{{- end }}

{{/* (root, port): a kubelet has no client certificate. If the port requires one, the probe only checks that the port is open. */}}
{{- define "stagecoach.stageProbe" -}}
{{ (index . 0).Values.internal.tls.existingSecret | empty | ternary "grpc" "tcpSocket" }}: {port: {{ index . 1 }}}
{{- end }}

{{/* (root, i): the container of a node's i-th stage. */}}
{{- define "stagecoach.stageContainer" -}}
{{- $root := index . 0 }}
{{- $i := index . 1 }}
{{- $port := add (int $root.Values.worker.port) $i }}
{{- with $root.Values.worker -}}
name: stage-{{ $i }}
image: {{ include "stagecoach.image" (list $root "worker") }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: [stagecoach-worker]
args:
  - --listen=0.0.0.0:{{ $port }}
  - --device={{ eq $root.Values.device "cuda" | ternary (printf "cuda:%d" (int $i)) "cpu" }}
  - --threads=$(THREADS)
  - --log-level={{ .logLevel }}
  {{- include "stagecoach.internal" $root | nindent 2 }}
  {{- include "stagecoach.observing" $root | nindent 2 }}
  {{- with .extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - name: THREADS
    valueFrom:
      resourceFieldRef: {containerName: stage-{{ $i }}, resource: limits.cpu}
ports:
  - {name: stage-{{ $i }}, containerPort: {{ $port }}}
# A worker listens at once and loads only when a router tells it to, so all three probes only check that the process
# answers.
startupProbe:
  {{- include "stagecoach.stageProbe" (list $root $port) | nindent 2 }}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
readinessProbe:
  {{- include "stagecoach.stageProbe" (list $root $port) | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
livenessProbe:
  {{- include "stagecoach.stageProbe" (list $root $port) | nindent 2 }}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
{{ include "stagecoach.securityContext" $root }}
resources:
  {{- toYaml .resources | nindent 2 }}
  {{- if eq $root.Values.device "cuda" }}
  claims: [{name: gpus}]
  {{- end }}
volumeMounts:
  - {name: model, mountPath: {{ $root.Values.model.mountPath }}, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- include "stagecoach.internalMounts" $root | nindent 2 }}
  - {name: shm, mountPath: /dev/shm}
{{- end }}
{{- end }}
