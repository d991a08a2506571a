{{/* The labels of every object. */}}
{{- define "piped.labels" -}}
app.kubernetes.io/name: piped
app.kubernetes.io/instance: {{ .Release.Namespace }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The name of objects that are not in the agent's namespace. */}}
{{- define "piped.scoped" -}}
{{ if eq .Release.Namespace "piped" }}piped{{ else }}piped.{{ .Release.Namespace }}{{ end }}
{{- end }}

{{/* Not empty if the repository is read with the deploy key. */}}
{{- define "piped.ssh" -}}
{{ if not (hasPrefix "http" .Values.repo) }}true{{ end }}
{{- end }}

{{/* Not empty if the repository is read with the Secret piped-git. */}}
{{- define "piped.readsAs" -}}
{{ include "piped.ssh" . }}{{ .Values.gitUsername }}
{{- end }}

{{/* The repository's name, by which the store knows it. */}}
{{- define "piped.repoID" -}}
{{- $address := regexReplaceAll "/+$" .Values.repo "" | trimSuffix ".git" }}
{{- regexReplaceAll "[^A-Za-z0-9._-]+" (regexSplit "[/:]" $address -1 | last) "-" | trimAll "-." | default "repository" }}
{{- end }}

{{/* The subject of the bindings. */}}
{{- define "piped.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: piped
    namespace: {{ .Release.Namespace }}
{{- end }}
