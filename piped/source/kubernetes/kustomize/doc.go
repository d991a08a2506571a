// Package kustomize builds kustomizations of a commit in memory, with Kustomize as a library.
//
// A build has two steps. The first step (plan) reads all kustomizations of the build, fetches
// remote bases with Remotes, and rewrites each reference to a path in a virtual file system,
// which contains the commit and the fetched trees. In the second step Kustomize builds from
// that file system. Kustomize itself would run git, and download everything that has the form
// of a URL. The rewritten references all begin with "./" or "../", so it does neither.
//
// The first step also renders charts with the agent's own renderer and fetches single remote
// files. Both become files of the virtual file system.
//
// The package reads nothing outside of the commit and of remote bases, runs no program, plugin
// or container, and writes nothing.
package kustomize
