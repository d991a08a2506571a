// Package variant creates the objects of a variant (canary or baseline), or of the preview of a pull
// request next to the application, from the objects of an application. For a canary or baseline it copies the workloads with another name and the variant's label, the
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
//	preview.go   what a preview consists of, and what its pods may use
//	relabel.go   the labels and selectors of a preview
//	previewroute.go   its routes of the Gateway API
//	previewistio.go   its VirtualServices and DestinationRules
//	previewpolicy.go  its NetworkPolicies
//	previewshared.go  the changes of a pull request that it does not have
//
// Variant's methods are pure: they do not access the cluster or change the given objects.
// Copies keep the Origin of the original, so errors name the file. Invalid input is an error
// of kind deploy.Invalid.
package variant
