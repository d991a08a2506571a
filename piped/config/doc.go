// Package config reads the two files people write: the agent's own
// configuration (kind Piped) and app.pipecd.yaml (kind KubernetesApp). It owns
// their types, defaults and rules, keeps PipeCD's field names, and reports all
// problems of a file together, each with file, line and field.
//
// It never guesses: unknown keys are refused, and so is what the language has but
// this version cannot do (unsupported.go lists it) once it has been checked.
// It opens no file but the one LoadPiped is given and, in Webhook.Load, the one
// that holds a secret; values it returns are not changed by it later. The fields
// only Kubernetes has are in config/kubernetes, the reading itself in config/strict,
// and config/schema makes the JSON Schema of either file from its types.
package config
