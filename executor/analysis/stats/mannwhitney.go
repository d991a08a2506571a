// Package stats implements the statistical test for analysis comparisons.
//
// It has its own Mann-Whitney test, since known Go libraries lack the exact
// distribution or the correction for ties. Its tests compare it with published tables
// and with examples of R and SciPy.
package stats

import (
	"math"
	"slices"
)

// Alternative is the alternative hypothesis about the first sample; the null hypothesis
// is that both samples come from one population.
type Alternative int

// The alternatives.
const (
	Differs Alternative = iota
	Greater             // the first tends to have larger values
	Less
)

// maxExact is the sample size from which the normal approximation is used, as in R.
const maxExact = 50

// MannWhitney returns the U statistic of x and the p-value of the Mann-Whitney U test
// against alt. U counts the pairs with the larger value in x; ties count half. The
// p-value is exact for samples of less than 50 values without ties. Otherwise it is the
// normal approximation with corrections for ties and continuity. It is 1 when a sample
// is empty or all values are equal. No value may be NaN.
func MannWhitney(x, y []float64, alt Alternative) (u, p float64) {
	if len(x) == 0 || len(y) == 0 {
		return 0, 1
	}
	u, ties := rank(x, y)
	if ties == 0 && len(x) < maxExact && len(y) < maxExact {
		return u, exact(len(x), len(y), int(u), alt)
	}
	return u, approximate(len(x), len(y), u, ties, alt)
}

// Least returns the smallest possible p-value for samples of n and m values without ties: 1
// divided by the number of equally likely orders, twice that for Differs. At a significance
// level that is not above it no difference is significant.
func Least(n, m int, alt Alternative) float64 {
	orders := 1.0 // n+m over n
	for i := range n {
		orders = orders * float64(m+1+i) / float64(1+i)
	}
	if alt == Differs {
		return min(1, 2/orders)
	}
	return 1 / orders
}

// rank returns U of x, and the sum of t³-t over the groups of t equal values.
func rank(x, y []float64) (u, ties float64) {
	type value struct {
		v   float64
		ofX bool
	}
	all := make([]value, 0, len(x)+len(y))
	for _, v := range x {
		all = append(all, value{v, true})
	}
	for _, v := range y {
		all = append(all, value{v, false})
	}
	slices.SortFunc(all, func(a, b value) int {
		switch {
		case a.v < b.v:
			return -1
		case a.v > b.v:
			return 1
		}
		return 0
	})
	var sum float64 // of the ranks of x
	for i := 0; i < len(all); {
		j, ofX := i, 0
		for ; j < len(all) && all[j].v == all[i].v; j++ {
			if all[j].ofX {
				ofX++
			}
		}
		sum += float64(ofX) * float64(i+j+1) / 2 // equal values share the mean of their ranks
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	n := float64(len(x))
	return sum - n*(n+1)/2, ties
}

// exact returns the p-value from the exact distribution of U without ties.
func exact(n, m, u int, alt Alternative) float64 {
	counts := arrangements(n, m)
	var total, upTo, from float64
	for i, c := range counts {
		total += c
		if i <= u {
			upTo += c
		}
		if i >= u {
			from += c
		}
	}
	switch alt {
	case Greater:
		return from / total
	case Less:
		return upTo / total
	}
	return min(1, 2*min(upTo, from)/total)
}

// arrangements counts, for each U, the orders of n and m values with that U, by the
// recurrence of Mann and Whitney (1947): the largest value belongs either to the n or
// to the m values.
func arrangements(n, m int) []float64 {
	row := make([][]float64, m+1) // indexed by the number of second values, without first values
	for j := range row {
		row[j] = []float64{1}
	}
	for i := 1; i <= n; i++ {
		next := make([][]float64, m+1)
		next[0] = []float64{1}
		for j := 1; j <= m; j++ {
			counts := make([]float64, i*j+1)
			for u, c := range row[j] {
				counts[u+j] += c
			}
			for u, c := range next[j-1] {
				counts[u] += c
			}
			next[j] = counts
		}
		row = next
	}
	return row[m]
}

// approximate returns the p-value by the normal approximation.
func approximate(n, m int, u, ties float64, alt Alternative) float64 {
	nm, all := float64(n)*float64(m), float64(n+m)
	sigma := math.Sqrt(nm / 12 * (all + 1 - ties/(all*(all-1))))
	if sigma == 0 || math.IsNaN(sigma) {
		return 1
	}
	d := u - nm/2
	switch alt {
	case Greater:
		return upper((d - 0.5) / sigma)
	case Less:
		return upper((-d - 0.5) / sigma)
	}
	return min(1, 2*upper((math.Abs(d)-0.5)/sigma))
}

// upper returns the upper tail probability of the normal distribution at z.
func upper(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }
