// Package variant makes the objects of a variant, a canary or a baseline, of those
// of an application: the workloads under another name and with the variant's label,
// the ConfigMaps and Secrets that their pods use, and if asked for their Services.
// A canary may be patched.
//
//	variant.go   what a variant consists of
//	workload.go  the workloads it is of, and their copies
//	service.go   generated Services
//	label.go     the variant label
//	patch.go     patches of objects
//	document.go  patches of documents in a field of an object
//	path.go      the paths by which patches say where
//	node.go      objects as the nodes that patches change
//
// It is pure: it talks to no cluster, changes none of the objects it is given, and
// gives what it makes their Origin, so that what is wrong points at the file. What
// it refuses is an error of kind deploy.Invalid.
package variant
