// Package starter makes configurations for those who have no file yet. That of an agent is for
// one repository and one cluster: the repository's default branch, all of its applications, the
// cluster and the context that kubectl would use, and everything else as by default. That of an
// observer is for one cluster, and has no repository. That of an
// application is for the manifests, the kustomization or the chart in a directory.
//
// It reads the kubeconfig, the HEAD of the repository and that directory, and writes nothing.
package starter
