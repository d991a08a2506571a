// Package source reads application sources at a commit: which application
// configurations a tree holds, what one of them says, and the objects it
// declares. It reads from the commit's fs.FS, never from a working directory,
// and needs no cluster: namespaces that manifests leave out stay empty.
//
// An application names no file outside its directory. Symbolic links are
// followed as far as they stay inside the commit.
package source
