// Package helm renders Helm charts to objects: a chart of the application's own
// repository, of a chart repository over HTTP, of an OCI registry, or of another
// Git repository. It needs no cluster and no helm binary; what it renders depends
// on nothing but the request and the chart.
//
// Charts are read, their values merged and their dependencies switched by the
// Helm SDK. Templates are executed here, with Helm's functions and results, for
// one reason: the SDK's engine can be neither stopped nor bounded, and a template
// is a program that anyone who can push to a repository writes. Here it ends at a
// time and at a number of bytes. The tests compare both engines.
//
// It never runs a program, never follows a name out of the application's
// repository, never asks a cluster (lookup finds nothing) or a name server
// (getHostByName returns ""), and never writes a credential into an error.
// Functions that are random by their nature, such as randAlphaNum, genCA and now,
// give something else at each rendering, as they do in Helm.
package helm
