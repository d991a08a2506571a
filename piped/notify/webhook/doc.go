// Package webhook tells notices to an HTTP server, in the JSON that PipeCD's webhooks
// have: {"Type": 4, "Metadata": {"deployment": {...}}}, with the names and numbers of
// its messages, and empty fields left out as PipeCD leaves them out.
//
// It declares these messages itself. Each request carries, beside PipeCD's header with
// a fixed value, what lets a receiver tell repetitions and forgeries: the name and the
// key of the event, and a signature by a secret of its own over them, the time and the
// body.
//
// It never shows the address or a secret, neither in errors nor in logs, and never sends
// the secret it signs with.
package webhook
