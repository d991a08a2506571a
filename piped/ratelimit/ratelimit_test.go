package ratelimit

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func TestLimiter(t *testing.T) {
	now := time.Unix(1000, 0)
	l := New(rate.Limit(2), 3, func() time.Time { return now })
	take := func(caller string, want time.Duration) {
		t.Helper()
		wait, ok := l.Take(caller)
		if wait != want || ok != (want == 0) {
			t.Errorf("%s waits %s (taken: %t), want %s", caller, wait, ok, want)
		}
	}
	for range 3 {
		take("a", 0)
	}
	take("a", 500*time.Millisecond)
	take("b", 0)
	now = now.Add(200 * time.Millisecond)
	take("a", 300*time.Millisecond)
	if wait, spent := l.Spent("a"); !spent || wait != 300*time.Millisecond {
		t.Errorf("spent: %t, %s", spent, wait)
	}
	now = now.Add(300 * time.Millisecond)
	for range 2 { // spent takes no token
		if _, spent := l.Spent("a"); spent {
			t.Error("spent though a token has come")
		}
	}
	take("a", 0)
	take("a", 500*time.Millisecond)
	l.Set(1, 1)
	take("a", 0)
	take("a", time.Second)
	l.Set(rate.Inf, 0)
	for range 10_000 {
		take("a", 0)
	}
}

// TestLimiterIsBounded: the number of buckets is limited, and further callers are limited as
// well.
func TestLimiterIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	l := New(rate.Limit(1), 2, func() time.Time { return now })
	refused := 0
	for i := range 3 * maxBuckets {
		if _, ok := l.Take(fmt.Sprint(i)); !ok {
			refused++
		}
	}
	if len(l.buckets) > maxBuckets+1 || refused < maxBuckets {
		t.Errorf("%d buckets, %d refused", len(l.buckets), refused)
	}
	if _, ok := l.Take("0"); !ok {
		t.Error("one that is remembered has lost its second token")
	}
	now = now.Add(time.Hour)
	if _, ok := l.Take("a new caller"); !ok || len(l.buckets) > 2 {
		t.Errorf("after an hour: %t, %d buckets", ok, len(l.buckets))
	}
}

func TestNetwork(t *testing.T) {
	for host, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
		"::ffff:192.0.2.7": "192.0.2.7", "bufconn": "bufconn", "": "",
	} {
		if got := Network(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
