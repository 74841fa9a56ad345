{{- define "trunkline.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "trunkline.selector" -}}
app.kubernetes.io/name: trunkline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "trunkline.labels" -}}
{{ include "trunkline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "trunkline.account" -}}
{{- .Values.serviceAccountName | default (include "trunkline.name" .) -}}
{{- end -}}

{{- /* The whole gateway.toml: that of the values, and the tables that depend on the pod. */ -}}
{{- define "trunkline.config" -}}
{{- range $table := list "admin" "cluster" -}}
{{- if regexMatch (printf "(?m)^\\s*\\[\\s*%s\\s*[].]" $table) $.Values.config -}}
{{- fail (printf "values: config has the table [%s], which the chart adds itself" $table) -}}
{{- end -}}
{{- end -}}
{{- if and (contains "/run/secrets/trunkline/" (print .Values.config .Values.cluster.store)) (not .Values.secret) -}}
{{- fail "values: config names files in /run/secrets/trunkline: set secret to the name of a Secret that has them" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.cluster.enabled) -}}
{{- fail "values: several replicas need cluster.enabled, cluster.store and cluster.certificate" -}}
{{- end -}}
{{- if and .Values.cluster.enabled (not (regexMatch "(?m)^\\s*state_keys\\s*=" .Values.config)) -}}
{{- fail "values: replicas need the same gateway.state_keys in config" -}}
{{- end -}}
{{- if and .Values.persistence.enabled (not (regexMatch "(?m)^\\s*state_dir\\s*=" .Values.config)) -}}
{{- fail "values: persistence needs gateway.state_dir = \"/var/lib/trunkline/state\" in config" -}}
{{- end -}}
{{ .Values.config | trim }}

[admin]
listen = "0.0.0.0:8081"
{{- if .Values.cluster.enabled }}

[cluster]
store = {{ .Values.cluster.store | toJson }}
listen = "0.0.0.0:7070"
advertise = "${env:POD_NAME}.{{ include "trunkline.name" . }}-replicas.{{ .Release.Namespace }}.svc.{{ .Values.cluster.domain }}:7070"
degrade = {{ .Values.cluster.degrade | toJson }}
cert = "/run/secrets/trunkline-replicas/tls.crt"
key = "/run/secrets/trunkline-replicas/tls.key"
ca = "/run/secrets/trunkline-replicas/ca.crt"
{{- end }}
{{- end -}}
