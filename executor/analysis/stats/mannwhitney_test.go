package stats

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestDistribution compares the exact distribution with the table of Mann and Whitney
// (Annals of Mathematical Statistics 18, 1947): P(U <= u) by n, m and u.
func TestDistribution(t *testing.T) {
	for size, want := range map[[2]int][]float64{
		{3, 3}: {.050, .100, .200, .350, .500, .650},
		{2, 4}: {.067, .133, .267, .400, .600},
		{4, 4}: {.014, .029, .057, .100, .171, .243, .343, .443, .557},
		{3, 5}: {.018, .036, .071, .125, .196, .286, .393, .500, .607},
		{5, 5}: {.004, .008, .016, .028, .048, .075, .111, .155, .210, .274, .345, .421, .500, .579},
	} {
		for u, p := range want {
			if got := exact(size[0], size[1], u, Less); math.Abs(got-p) > 0.0006 {
				t.Errorf("n = %d, m = %d: P(U <= %d) is %.4f, want %.3f", size[0], size[1], u, got, p)
			}
		}
	}
}

// TestCriticalValues compares it with the usual tables of critical values: the largest
// U that is significant at 0.05.
func TestCriticalValues(t *testing.T) {
	for _, c := range []struct{ n, m, two, one int }{
		{4, 4, 0, 1}, {5, 5, 2, 4}, {5, 8, 6, 8}, {6, 6, 5, 7}, {7, 10, 14, 17}, {8, 8, 13, 15}, {10, 10, 23, 27},
		{12, 15, 49, 55}, {15, 15, 64, 72}, {20, 20, 127, 138},
	} {
		for alt, critical := range map[Alternative]int{Differs: c.two, Less: c.one} {
			if at, above := exact(c.n, c.m, critical, alt), exact(c.n, c.m, critical+1, alt); at > 0.05 || above <= 0.05 {
				t.Errorf("n = %d, m = %d, alternative %d: p is %.4f at the critical U of %d and %.4f above", c.n, c.m, alt, at, critical, above)
			}
		}
	}
}

// TestPublishedExamples are those of the manuals of R (wilcox.test: Hollander and
// Wolfe 1973, airquality of May and August) and SciPy (mannwhitneyu).
func TestPublishedExamples(t *testing.T) {
	placenta := [][]float64{{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46}, {1.15, 0.88, 0.90, 0.74, 1.21}}
	diabetes := [][]float64{{19, 22, 16, 29, 24}, {20, 11, 17, 12}}
	ozone := [][]float64{
		{41, 36, 12, 18, 28, 23, 19, 8, 7, 16, 11, 14, 18, 14, 34, 6, 30, 11, 1, 11, 4, 32, 23, 45, 115, 37},
		{39, 9, 16, 78, 35, 66, 122, 89, 110, 44, 28, 65, 22, 59, 23, 31, 44, 21, 9, 45, 168, 73, 76, 118, 84, 85},
	}
	for name, c := range map[string]struct {
		samples [][]float64
		alt     Alternative
		u, p    float64
		within  float64
	}{
		"exact, one-sided":  {placenta, Greater, 35, 0.1272, 0.00005},
		"exact, two-sided":  {diabetes, Differs, 17, 0.1111, 0.00005},
		"ties, many values": {ozone, Differs, 127.5, 0.0001208, 0.00000005},
		"the other way":     {[][]float64{diabetes[1], diabetes[0]}, Differs, 3, 0.1111, 0.00005},
		"ties, few values":  {[][]float64{{1, 2}, {2, 3}}, Less, 0.5, 0.2071, 0.00005}, // by the formula
	} {
		u, p := MannWhitney(c.samples[0], c.samples[1], c.alt)
		if u != c.u || math.Abs(p-c.p) > c.within {
			t.Errorf("%s: U = %g, p = %.8f; want U = %g, p = %.8f", name, u, p, c.u, c.p)
		}
	}
	if got := approximate(5, 4, 17, 0, Differs); math.Abs(got-0.11134688653314041) > 1e-15 {
		t.Errorf("SciPy's asymptotic example: p = %v", got)
	}
}

func TestNothingToCompare(t *testing.T) {
	big := make([]float64, 200)
	for name, samples := range map[string][2][]float64{
		"nothing": {}, "one empty": {{1}, nil}, "the other empty": {nil, {1}}, "all equal": {{2, 2, 2}, {2, 2}}, "many equal": {big, big},
		"one each": {{1}, {1}},
	} {
		for _, alt := range []Alternative{Differs, Greater, Less} {
			if _, p := MannWhitney(samples[0], samples[1], alt); p < 0.5 {
				t.Errorf("%s: p = %g, want nothing shown", name, p)
			}
		}
	}
}

// TestProperties: p is a probability, U counts pairs, and both sides of a test agree.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(-9, 60).Draw(t, "v")) }), 1, 60)
		x, y := values.Draw(t, "x"), values.Draw(t, "y")
		var pairs float64
		for _, a := range x {
			for _, b := range y {
				switch {
				case a > b:
					pairs++
				case a == b:
					pairs += 0.5
				}
			}
		}
		for _, alt := range []Alternative{Differs, Greater, Less} {
			u, p := MannWhitney(x, y, alt)
			_, mirrored := MannWhitney(y, x, map[Alternative]Alternative{Differs: Differs, Greater: Less, Less: Greater}[alt])
			if u != pairs || !(p >= 0 && p <= 1) || math.Abs(p-mirrored) > 1e-9 {
				t.Fatal(fmt.Sprintf("alternative %d: U = %g of %g, p = %g, mirrored %g", alt, u, pairs, p, mirrored))
			}
		}
	})
}

// TestLeast compares it with samples whose values are all above the others.
func TestLeast(t *testing.T) {
	for n := 1; n <= 8; n++ {
		for m := 1; m <= 8; m++ {
			var x, y []float64
			for i := range n {
				x = append(x, float64(100+i))
			}
			for i := range m {
				y = append(y, float64(i))
			}
			for _, alt := range []Alternative{Differs, Greater} {
				if _, p := MannWhitney(x, y, alt); math.Abs(p-Least(n, m, alt)) > 1e-12 {
					t.Errorf("%d and %d values, alternative %d: p is %g, least %g", n, m, alt, p, Least(n, m, alt))
				}
			}
		}
	}
}
