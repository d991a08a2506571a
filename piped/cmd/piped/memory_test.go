package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMemoryIsGivenBackOnceAfterMuchWork(t *testing.T) {
	const mib = 1 << 20
	var m memory
	var got []bool
	for _, allocated := range []uint64{
		10 * mib, 200 * mib, 300 * mib, // busy
		301 * mib,                       // idle: release
		302 * mib, 305 * mib, 308 * mib, // still idle, with little new
		400 * mib, // busy again
		401 * mib, // idle: release
	} {
		got = append(got, m.due(allocated))
	}
	want := []bool{false, false, false, true, false, false, false, false, true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("given back (-want +got):\n%s", diff)
	}
}

func TestAllocatedBytesAreCounted(t *testing.T) {
	before := allocated()
	kept := make([]byte, 8<<20)
	if after := allocated(); after < before+uint64(len(kept)) {
		t.Errorf("%d bytes before and %d after 8 MiB were allocated", before, after)
	}
}
