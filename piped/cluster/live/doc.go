// Package live reads the live objects of an application in one cluster.
//
// Members caches the metadata of all objects that carry the application label, of the kinds
// passed to Follow. It notifies its user of each application whose objects change. InSync
// decides by that metadata alone whether an object is still as it was applied. Read returns
// the objects of one application with their health and, on request, the objects that they
// created; it caches nothing. ReadObject, Events and OpenLog read the content, the Kubernetes
// events and the logs of such objects.
//
// The package changes nothing in the cluster and stores nothing. Package apply finds the
// differences from Git.
package live
