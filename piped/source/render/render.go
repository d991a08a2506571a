// Package render defines the interface between package source and the renderers of the kinds of
// application. It imports no other package below source, so that all of them can import it.
package render

import (
	"context"
	"io/fs"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Request is a request to render the objects of an application.
type Request struct {
	Files  fs.FS // of the repository, with decrypted secrets; nil in Renderer.Context
	At     deploy.GitPath
	Config *config.Application
	Name   func() string // returns the name of the application
	// Offline is that nothing may be fetched: who wrote the files must not choose what the agent reads with
	// its network and its credentials.
	Offline bool
}

// Result is the result of a rendering. Bytes, Varies and Context may also be set with an error.
type Result struct {
	Objects []manifest.Object
	Bytes   int64 // of their text
	// Varies reports that the objects or the returned error also depend on other
	// repositories, on servers, or on the duration of the rendering.
	Varies bool
	// Context is the value of Renderer.Context if the objects or the returned error depend
	// on it, else "".
	Context string
	// Warnings report probable mistakes. Each is one line that begins with the file.
	Warnings []string
}

// Renderer renders applications of one kind. It is safe for concurrent use.
type Renderer interface {
	// Render returns the objects of an application. An error of kind deploy.Invalid names
	// the file and what to change in Git.
	Render(ctx context.Context, req Request) (Result, error)
	// Context returns a fingerprint of the inputs of a rendering from the platform and the
	// application's registration. While it stays the same, the result stays the same.
	Context(ctx context.Context, req Request) string
	// Fingerprint identifies the settings of the renderer.
	Fingerprint() string
}
