// Package source reads application sources at a commit: which application
// configurations a tree holds, what one of them says, and the objects it
// declares. It reads from the commit's fs.FS, never from a working directory,
// and needs no cluster: namespaces that manifests leave out stay empty.
//
// A source never reaches outside its application's directory.
package source
