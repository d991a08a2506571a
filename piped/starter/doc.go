// Package starter makes the configuration of an agent for one repository and one cluster, for
// those who have no file yet: the repository's default branch, all of its applications, the
// cluster and the context that kubectl would use, and everything else as by default.
//
// It reads the kubeconfig and the HEAD of the repository, and writes nothing.
package starter
