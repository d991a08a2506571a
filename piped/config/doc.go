// Package config reads the two files that users write: the agent's own configuration
// (kind Piped) and app.pipecd.yaml, whose kind is that of the application. It owns
// their types, defaults and rules, keeps PipeCD's field names, and reports all
// problems of a file together, each with file, line and field.
//
// Kinds is the table of the kinds of application; a Kind describes the fields, stages
// and platform providers that only one of them has. Those of Kubernetes are in
// config/kubernetes. config/strict decodes the files, and config/schema makes their
// JSON Schemas from the types.
//
// It never guesses: unknown keys are reported and not read, and fields that this
// version cannot honour are refused after they were checked. It opens no file but the
// one LoadPiped is given and, in Webhook.Load, the one that holds a secret. It does not
// change values that it has returned.
package config
