package app

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store/storetest"
)

// outbox returns the keys and types of all events in the outbox, delivered or not. It
// reads the database, because the store returns pending events only.
func outbox(t *testing.T, dsn string) (events []deploy.Event) {
	t.Helper()
	rows, err := storetest.Raw(t, dsn).QueryContext(t.Context(), "SELECT event_key, type FROM outbox ORDER BY seq")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e deploy.Event
		if err := rows.Scan(&e.Key, &e.Type); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}
