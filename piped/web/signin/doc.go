// Package signin serves the sign-in of users over HTTP: the page that lists the issuers, the
// callbacks, sign-in with an API key, sign-out, and what pipectl needs to sign in through a
// browser or on another device.
//
// The package stores nothing itself and decides nothing about permissions. It never answers
// whether a user or key exists. Responses to browsers contain no script.
package signin
