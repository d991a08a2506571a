// Package source loads application sources at a commit: the application configurations of a
// tree, and the objects that an application declares. A Renderer for each kind of application
// renders the objects (see source/kubernetes). The package reads from the commit's fs.FS,
// never from a working directory, and needs no cluster.
//
// An application may not refer to files outside its directory. Symbolic links are followed if
// their target is inside the commit.
package source
