package drift

import (
	"fmt"
	"testing"
	"time"
)

// TestEachObjectHasItsTime: every object is due once per interval, however the interval
// is divided, and the times are spread evenly.
func TestEachObjectHasItsTime(t *testing.T) {
	const every, step, objects = 6 * time.Hour, 10 * time.Second, 2000
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	perHour := map[int]int{}
	for i := range objects {
		uid := fmt.Sprintf("0c9d4a52-7a58-4cf1-9c9e-%012d", i)
		times := 0
		for at := start; at.Before(start.Add(every)); at = at.Add(step) {
			if isDue(uid, at, at.Add(step), every) {
				times++
				perHour[int(at.Sub(start)/time.Hour)]++
				if !isDue(uid, at.Add(every), at.Add(every+step), every) {
					t.Fatalf("%s has another time in the next interval", uid)
				}
			}
		}
		if times != 1 {
			t.Fatalf("the time of %s came %d times", uid, times)
		}
	}
	for hour, n := range perHour {
		if n < objects/12 || n > objects/3 {
			t.Errorf("in hour %d come %d of %d objects", hour, n, objects)
		}
	}
}
