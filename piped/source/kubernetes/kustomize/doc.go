// Package kustomize builds kustomizations of a commit in memory, with Kustomize
// as a library.
//
// A build has two steps. The first reads every kustomization it will need,
// fetches remote bases through Remotes and rewrites each reference to a path of
// one virtual file system that holds the commit and the fetched trees. The second
// lets Kustomize build from that file system. Kustomize itself would run git and
// request whatever looks like a URL to it from HTTP servers; after the first step
// nothing does, for every path it sees begins with "./" or "../".
//
// Charts that a kustomization names are rendered by the agent's own renderer in the
// first step, and single remote files are fetched in it. Both become files of the
// virtual file system.
//
// The package itself reads nothing outside of the commit and of remote bases, runs no
// program, plugin or container, and writes nothing.
package kustomize
