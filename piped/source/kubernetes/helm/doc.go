// Package helm renders Helm charts to objects. A chart can be in the application's own
// repository, a chart repository (HTTP), an OCI registry or another Git repository. The
// package needs no cluster and no helm binary. The result depends only on the request and
// the chart.
//
// The Helm SDK parses charts, merges values, and enables or disables dependencies. Templates
// are executed by this package, with the same functions and results as in Helm. The reason is
// that the SDK's engine can be neither stopped nor limited, and anyone who can push to a
// repository can write a template. This package limits the time and the output of templates.
// The tests compare both engines.
//
// The package never runs a program, reads no files outside the application's repository,
// sends no request to a cluster (lookup finds nothing) or a name server (getHostByName
// returns ""), and writes no credentials into errors. Functions such as randAlphaNum, genCA
// and now return another value in each rendering, as in Helm.
package helm
