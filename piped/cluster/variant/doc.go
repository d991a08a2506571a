// Package variant creates the objects of a variant (canary or baseline) from the objects
// of an application. It copies the workloads with another name and the variant's label, the
// ConfigMaps and Secrets that their pods use and, with createService, their Services. The
// copies of a canary may be patched.
//
//	variant.go   what a variant consists of
//	workload.go  selection of workloads, and their copies
//	service.go   generated Services
//	label.go     the variant label
//	patch.go     patches of objects
//	document.go  patches of documents in a field of an object
//	path.go      paths of the fields to patch
//	node.go      conversion between objects and the YAML nodes that patches change
//
// Variant's methods are pure: they do not access the cluster or change the given objects.
// Copies keep the Origin of the original, so errors name the file. Invalid input is an error
// of kind deploy.Invalid.
package variant
