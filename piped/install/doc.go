// Package install installs the agent in a cluster: it makes the manifests of each variant and the
// secrets that they need, applies them, checks what an installation needs, and removes it.
//
// A variant has permissions in the whole cluster or in some namespaces, and its store on a volume
// (SQLite, one replica) or in PostgreSQL (several replicas). Files returns its manifests as text
// with comments. Every object has the labels of the installation, by which a later installation
// finds what the variant before it left, and Remove what there is to remove.
//
// It never replaces a secret that exists, never deletes an object without these labels, and never
// touches what the agent deploys. It does not read or write the agent's store.
package install
