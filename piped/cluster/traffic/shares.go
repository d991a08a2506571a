package traffic

import (
	"fmt"
	"strings"

	"github.com/c785c783/piped/piped/config/kubernetes"
)

// Shares is the percentage of the traffic that each variant gets. Valid shares are not
// negative and add up to 100.
type Shares struct {
	Primary  int `json:"primary"`
	Canary   int `json:"canary"`
	Baseline int `json:"baseline"`
}

// Stable returns the shares without a rollout: all traffic goes to the primary.
func Stable() Shares { return Shares{Primary: 100} }

// Whole reports whether the primary gets all the traffic.
func (s Shares) Whole() bool { return s == Stable() }

// Of returns the share of a variant.
func (s Shares) Of(v kubernetes.Variant) int {
	switch v {
	case kubernetes.Primary:
		return s.Primary
	case kubernetes.Canary:
		return s.Canary
	case kubernetes.Baseline:
		return s.Baseline
	}
	return 0
}

// String returns the non-zero shares, such as "canary 20%, primary 80%".
func (s Shares) String() string {
	var parts []string
	for _, v := range []kubernetes.Variant{kubernetes.Canary, kubernetes.Baseline, kubernetes.Primary} {
		if share := s.Of(v); share != 0 {
			parts = append(parts, fmt.Sprintf("%s %d%%", v, share))
		}
	}
	return strings.Join(parts, ", ")
}

// check returns an error if a share is negative or the shares do not add up to 100.
func (s Shares) check() error {
	if s.Primary < 0 || s.Canary < 0 || s.Baseline < 0 || s.Primary+s.Canary+s.Baseline != 100 {
		return fmt.Errorf("primary %d, canary %d and baseline %d do not make 100", s.Primary, s.Canary, s.Baseline)
	}
	return nil
}
