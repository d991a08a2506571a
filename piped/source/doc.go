// Package source reads application sources at a commit: the application
// configurations of a tree, and the objects that an application declares. A
// Renderer for each kind of application makes the objects (see source/kubernetes).
// It reads from the commit's fs.FS, never from a working directory, and needs no
// cluster.
//
// An application names no file outside its directory. Symbolic links are
// followed as far as they stay inside the commit.
package source
