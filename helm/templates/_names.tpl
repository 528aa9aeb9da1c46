{{- define "stagecoach.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* At most 40 characters: "-workers-0" or "-groups-0-1" and a controller's hash still fit into a label. */}}
{{- define "stagecoach.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "stagecoach.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "stagecoach.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "stagecoach.workers" -}}
{{ include "stagecoach.fullname" . }}-workers
{{- end }}

{{- define "stagecoach.groups" -}}
{{ include "stagecoach.fullname" . }}-groups
{{- end }}

{{- define "stagecoach.internalSecret" -}}
{{- default (printf "%s-internal" (include "stagecoach.fullname" .)) .Values.internal.existingSecret }}
{{- end }}

{{- define "stagecoach.serviceAccount" -}}
{{- default (ternary (include "stagecoach.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "stagecoach.selector" -}}
app.kubernetes.io/name: {{ include "stagecoach.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stagecoach.labels" -}}
{{ include "stagecoach.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* (root, part): the image of "router" or "worker" */}}
{{- define "stagecoach.image" -}}
{{- $root := index . 0 }}
{{- $image := index $root.Values.image (index . 1) }}
{{- $repository := default (printf "stagecoach/worker-%s" $root.Values.device) $image.repository }}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ default $root.Chart.AppVersion $image.tag }}
{{- end }}
{{- end }}

{{/* Checks that the values' schema cannot express. */}}
{{- define "stagecoach.check" -}}
{{- if .Values.leaderWorkerSet.enabled }}
{{- if eq (int .Values.nodes) 1 }}{{ fail "leaderWorkerSet: a pipeline on one node is one pod, which needs no group; set nodes, or leave it out" }}{{ end }}
{{- else if gt (int .Values.nodes) 1 }}
{{- if gt (int .Values.replicas) 1 }}{{ fail "replicas: with more than one node a release is one pipeline; install a second release for a second one, or enable leaderWorkerSet" }}{{ end }}
{{- if or .Values.hpa.enabled .Values.keda.enabled }}{{ fail "hpa and keda scale pipelines of one node; with nodes > 1 install a release a pipeline, or enable leaderWorkerSet" }}{{ end }}
{{- end }}
{{- with .Values.router.journal }}
{{- if and .existingSecret .volume }}{{ fail "router.journal: the journal is in Redis or on a volume: leave existingSecret or volume out" }}{{ end }}
{{- $is_shared := or .existingSecret (and .volume (not (hasKey .volume "emptyDir"))) }}
{{- if and $is_shared (not (and .existingSecret $.Values.leaderWorkerSet.enabled)) }}
{{- if or (gt (int $.Values.replicas) 1) $.Values.hpa.enabled $.Values.keda.enabled }}{{ fail "router.journal: one router has the journal: with replicas, hpa or keda, install a release a pipeline, use an emptyDir, or Redis with leaderWorkerSet" }}{{ end }}
{{- if and $.Values.surge (eq (int $.Values.nodes) 1) }}{{ fail "router.journal: an upgrade's new pod would wait for the journal of the old one, which ends later: set surge: false, or use an emptyDir" }}{{ end }}
{{- end }}
{{- end }}
{{- if and .Values.kvEvents.enabled .Values.auth.existingSecret }}{{ fail "kvEvents: with auth, everything is cached for one tenant only, and no event is published: check keys in the gateway, or leave kvEvents out" }}{{ end }}
{{- if and .Values.hpa.enabled .Values.keda.enabled }}{{ fail "hpa and keda would scale against each other: enable one" }}{{ end }}
{{- if and .Values.keda.enabled (not .Values.keda.serverAddress) }}{{ fail "keda.serverAddress: where is Prometheus? Such as http://prometheus.monitoring.svc:9090" }}{{ end }}
{{- end }}
