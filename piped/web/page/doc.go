// Package page serves the page: the views of applications and deployments that people read
// and act on in a browser. It is a client of the API like pipectl, within the process and
// with the credentials of the browser's session, so that it can do nothing that the API
// cannot. It renders HTML from templ components; htmx swaps the live parts, which come as
// Server-Sent Events.
//
// A view is a Go file and a templ file, with one line in the table of routes. The package
// reads neither the store nor the configuration. It stores nothing but the saved filters of a
// browser, in a cookie.
package page
