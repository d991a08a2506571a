// Package manifest handles Kubernetes objects as values. It parses them from YAML and
// JSON, identifies them (Ref, ResourceKey), digests and compares them (Digest, Diff),
// finds their images and the ConfigMaps and Secrets that they use, and sets ownership
// annotations.
//
// It accesses no cluster and uses no discovery: a namespace missing in a manifest is
// "". All functions are safe for concurrent use as long as no goroutine changes an
// object that another one reads.
package manifest
