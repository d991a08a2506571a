package githost

import "testing"

func TestSameRepository(t *testing.T) {
	const https = "https://git.shop.example/shop/config.git"
	tests := map[string]struct {
		a, b string
		want bool
	}{
		"itself":                           {https, https, true},
		"SSH, short form":                  {https, "git@git.shop.example:shop/config.git", true},
		"SSH, short form, rooted":          {https, "git@git.shop.example:/shop/config.git", true},
		"SSH, short form, no user":         {https, "git.shop.example:shop/config", true},
		"SSH, short form with a port":      {"ssh://git@git.shop.example:2222/shop/config", "git@git.shop.example:2222:shop/config.git", true},
		"SSH":                              {https, "ssh://git@git.shop.example/shop/config.git", true},
		"SSH with its port":                {https, "ssh://git@git.shop.example:22/shop/config", true},
		"SSH by its longer name":           {https, "git+ssh://git@git.shop.example/shop/config", true},
		"plain HTTP":                       {https, "http://git.shop.example:80/shop/config", true},
		"HTTPS with its port":              {https, "https://git.shop.example:443/shop/config.git", true},
		"Git's own":                        {https, "git://git.shop.example:9418/shop/config.git", true},
		"credentials":                      {https, "https://robot:t0ken@git.shop.example/shop/config.git", true},
		"case of host and scheme":          {https, "HTTPS://Git.Shop.Example/shop/config.git", true},
		"slashes":                          {https, "https://git.shop.example//shop/config/", true},
		"slash after .git":                 {https, "https://git.shop.example/shop/config.git/", true},
		"escaped letter":                   {"https://git.shop.example/~ann/config", "https://git.shop.example/%7Eann/config", true},
		"query":                            {https, "https://git.shop.example/shop/config.git?depth=1", true},
		"Data Center over HTTP and SSH":    {"https://git.shop.example/scm/shop/config.git", "ssh://git@git.shop.example/shop/config.git", true},
		"IPv6":                             {"https://[2001:db8::1]/shop/config", "ssh://git@[2001:DB8::1]:22/shop/config.git", true},
		"case of path":                     {https, "https://git.shop.example/Shop/config.git", false},
		"other repository":                 {https, "https://git.shop.example/shop/config2.git", false},
		"beginning of the path":            {https, "https://git.shop.example/shop", false},
		"end of the path":                  {https, "https://git.shop.example/config.git", false},
		"other host":                       {https, "https://git.shop.example.org/shop/config.git", false},
		"host in another's path":           {https, "https://evil.example/git.shop.example/shop/config.git", false},
		"host as another's user":           {https, "https://git.shop.example@evil.example/shop/config.git", false},
		"other port":                       {https, "https://git.shop.example:8443/shop/config.git", false},
		"port that is another's default":   {"https://git.shop.example:80/shop/config", "http://git.shop.example/shop/config", false},
		"SSH has no scm":                   {"ssh://git@git.shop.example/scm/shop/config.git", "ssh://git@git.shop.example/shop/config.git", false},
		"path that only looks like a port": {"git@git.shop.example:2222/shop/config.git", "ssh://git@git.shop.example:2222/shop/config.git", false},
		"no path":                          {"https://git.shop.example/", "https://git.shop.example/", false},
		"nothing but .git":                 {"https://git.shop.example/.git", "https://git.shop.example", false},
		"path on this machine":             {"/srv/git/config.git", "/srv/git/config.git", false},
		"file":                             {"file:///srv/git/config.git", "file:///srv/git/config.git", false},
		"other scheme":                     {"ftp://git.shop.example/shop/config", "ftp://git.shop.example/shop/config", false},
		"no URL":                           {"https://git.shop.example:port/x", "https://git.shop.example:port/x", false},
		"nothing":                          {"", "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := SameRepository(tc.a, tc.b); got != tc.want {
				t.Errorf("SameRepository(%q, %q) = %v, want %v", tc.a, tc.b, got, tc.want)
			}
			if got := SameRepository(tc.b, tc.a); got != tc.want {
				t.Errorf("SameRepository(%q, %q) = %v, want %v", tc.b, tc.a, got, tc.want)
			}
		})
	}
}

func TestConcerns(t *testing.T) {
	push := Push{Remotes: []string{"https://github.com/shop/config.git", "git@github.com:shop/config.git"}, Branches: []string{"main", "next"}}
	tests := map[string]struct {
		push           Push
		remote, branch string
		want           bool
	}{
		"first branch":      {push, "https://github.com/shop/config", "main", true},
		"another branch":    {push, "ssh://git@github.com/shop/config", "next", true},
		"unwatched branch":  {push, "https://github.com/shop/config", "prod", false},
		"case of a branch":  {push, "https://github.com/shop/config", "Main", false},
		"unwatched remote":  {push, "https://github.com/shop/other", "main", false},
		"nothing was moved": {Push{Remotes: push.Remotes}, "https://github.com/shop/config", "main", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.push.Concerns(tc.remote, tc.branch); got != tc.want {
				t.Errorf("Concerns(%q, %q) = %v, want %v", tc.remote, tc.branch, got, tc.want)
			}
		})
	}
}
