// Package live reads what is live of an application in one cluster.
//
// Members caches the metadata of all objects that carry the application label, of the
// kinds it was asked to Follow, and wakes the caller with the application of each object
// that changes. InSync decides by that metadata alone whether an object is as it was
// applied. Read reads the objects of one application with their health and, on request,
// the objects that they created; it caches nothing.
//
// The package changes nothing in the cluster and stores nothing. What differs from Git is
// found by package apply.
package live
