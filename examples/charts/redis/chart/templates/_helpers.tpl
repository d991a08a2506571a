{{- define "redis.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "redis.meta" -}}
name: {{ .Release.Name }}
labels:
  {{- include "redis.labels" . | nindent 2 }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
