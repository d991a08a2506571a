// Package webhook posts notices to an HTTP server as JSON in the format of PipeCD's
// webhooks: {"Type": 4, "Metadata": {"deployment": {...}}}, with the field names and enum
// numbers of PipeCD's messages. Empty fields are omitted, as in PipeCD. The package
// declares these messages itself.
//
// Each request carries PipeCD's header with a fixed value and, in addition, the event's
// type and idempotency key. With an HMAC secret it also carries a timestamp and a
// signature over timestamp, key, type and body, so that a receiver can detect replays
// and forgeries.
//
// Errors and logs contain neither the address nor a secret, and the HMAC secret is never
// sent.
package webhook
