// Package importer converts what other GitOps tools deploy: Application and ApplicationSet of
// Argo CD, Kustomization and HelmRelease of Flux. For each of them it returns the files of an
// application of the agent, the fields that the agent cannot express, what belongs into the
// agent's own configuration, and the steps that take the live objects over.
//
// Every field of a document is either expressed, reported, or known to have no meaning here:
// a field that the package does not read is reported as well. The package reads a checkout of
// the repository and writes nothing.
package importer
