// Package render defines what package source and the renderers of the kinds of
// application share: the request for the objects of an application, and the result. It
// imports no other package of the room, so that each of them can import it.
package render

import (
	"context"
	"io/fs"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Request asks for the objects of an application.
type Request struct {
	Files  fs.FS // of the repository, with decrypted secrets; nil in Renderer.Context
	At     deploy.GitPath
	Config *config.Application
	Name   func() string // returns the name of the application
}

// Result is what the files of an application declare.
type Result struct {
	Objects []manifest.Object
	Bytes   int64 // of their text
	// Varies reports that the objects, or the error next to the result, depend on more than
	// the files: on other repositories, on servers, or on the time that rendering takes.
	Varies bool
	// Context is that of Renderer.Context when the objects, or the error, depend on it; else
	// "".
	Context string
	// Warnings are about files, each a line that begins with the file.
	Warnings []string
}

// Renderer renders applications of one kind. It is safe for concurrent use.
type Renderer interface {
	// Render returns the objects of an application. An error of kind deploy.Invalid names
	// the file and what must be changed in Git.
	Render(ctx context.Context, req Request) (Result, error)
	// Context identifies what an application sees of its platform and of its own
	// registration: rendering it again gives the same as long as this stays the same.
	Context(ctx context.Context, req Request) string
	// Fingerprint identifies the settings of the renderer.
	Fingerprint() string
}
