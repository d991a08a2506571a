// Package reference contains the reference of the HTTP API that the agent serves.
package reference

import _ "embed"

// OpenAPI is the OpenAPI description of the HTTP API, which examples/docs generates.
//
//go:embed openapi.json
var OpenAPI []byte
