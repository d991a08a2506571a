// Package manifest treats Kubernetes objects as values: it parses them from
// YAML and JSON, names them (Ref, ResourceKey), digests them, tells how two
// declarations differ (Diff), finds the images they run and the ConfigMaps and
// Secrets they use, and writes the annotations that mark whose they are.
//
// It talks to no cluster and knows no discovery: a namespace that a manifest
// leaves out is "" here. Everything is safe for concurrent use as long as
// nobody changes an object that another goroutine reads.
package manifest
