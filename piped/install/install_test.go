package install

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/crypto/ssh"
	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/git/gittest"
)

// options of a variant that is valid, with what differs.
func options(change func(*Options)) Options {
	o := Options{Repo: "git@git.example.com:team/apps.git", Image: "registry.example/piped:v1"}
	if change != nil {
		change(&o)
	}
	return o
}

func variant(t *testing.T, o Options) Variant {
	t.Helper()
	v, err := NewVariant(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestOptionsThatCannotWorkAreRefused in words.
func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Repo = "" }, "--repo is missing"},
		{func(o *Options) { o.Repo = "/srv/apps.git" }, "a pod cannot read a directory"},
		{func(o *Options) { o.Repo = "https://me:s3cret@git.example.com/apps.git" }, "--repo has credentials"},
		{func(o *Options) { o.Repo = "gopher://host/apps" }, "--repo: "},
		{func(o *Options) { o.Repo = "https://me:s3cret@git.example.com/apps.git" }, "--git-password-file"},
		{func(o *Options) { o.GitUsername = "me" }, "are for a repository over HTTP"},
		{func(o *Options) { o.Repo, o.GitUsername = "https://git.example.com/apps.git", "me\nhost: evil" }, "control characters"},
		{func(o *Options) { o.Path = "apps/*" }, "name a directory"},
		{func(o *Options) { o.Image = "two words" }, "no reference of an image"},
		{func(o *Options) { o.Namespace = "Upper" }, "the namespace \"Upper\""},
		{func(o *Options) { o.Namespace = strings.Repeat("n", 41) }, "more than 40 characters"},
		{func(o *Options) { o.Namespaces = []string{"a", "b c"} }, "the namespace \"b c\""},
		{func(o *Options) { o.PipedID = "a b" }, "--piped-id"},
		{func(o *Options) { o.StorageSize = "much" }, "--storage-size"},
		{func(o *Options) { o.StorageSize = "-1Gi" }, "--storage-size"},
		{func(o *Options) { o.Replicas = 3 }, "name it with --postgres"},
		{func(o *Options) { o.Postgres, o.Replicas = "postgres://me@host/db", -1 }, "at least one agent"},
		{func(o *Options) { o.Share = true }, "name it with --postgres"},
		{func(o *Options) { o.Postgres = "mysql://me@host/db" }, "write postgres://"},
		{func(o *Options) { o.Postgres = "postgres://host/db" }, "write postgres://"},
		{func(o *Options) { o.Postgres = "postgres://me@host" }, "write postgres://"},
		{func(o *Options) { o.Postgres = "postgres://me:s3cret@host/db" }, "--postgres-password-file"},
		{func(o *Options) { o.Postgres = "postgres://me@host/db?password=s3cret" }, "--postgres-password-file"},
		{func(o *Options) { o.Postgres = "postgres://me@host/db?passfile=/x" }, "Secret piped-store"},
	} {
		_, err := NewVariant(options(c.change))
		if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestValuesStayOneScalar: no value of a user becomes another field of a manifest.
func TestValuesStayOneScalar(t *testing.T) {
	const odd = `x: y # "z" 'w' {a} [b] & *c`
	v := variant(t, options(func(o *Options) { o.Branch, o.Path, o.StorageClass = odd, "a: b", "1" }))
	files, err := v.Files()
	if err != nil {
		t.Fatal(err)
	}
	all, err := objects(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.GetKind() == "ConfigMap" {
			text, _, _ := unstructured.NestedString(o.Object, "data", "piped.yaml")
			var read struct {
				Spec struct {
					Repositories []struct {
						Branch   string
						Discover struct{ Paths []string }
					}
				}
			}
			if err := yaml.Unmarshal([]byte(text), &read); err != nil {
				t.Fatal(err)
			}
			if r := read.Spec.Repositories; len(r) != 1 || r[0].Branch != odd || !slices.Equal(r[0].Discover.Paths, []string{"a: b/**"}) {
				t.Errorf("the repositories are %+v", r)
			}
		}
		if class, is, _ := unstructured.NestedString(o.Object, "spec", "storageClassName"); o.GetKind() == "PersistentVolumeClaim" && (!is || class != "1") {
			t.Errorf("the storage class is %q", class)
		}
		for k, want := range labels(DefaultNamespace) {
			if got := o.GetLabels()[k]; got != want {
				t.Errorf("%s %s: the label %s is %q", o.GetKind(), o.GetName(), k, got)
			}
		}
	}
}

// TestAGeneratedDeployKeyOpensTheRepository on a real SSH server, which knows only the public half.
func TestAGeneratedDeployKeyOpensTheRepository(t *testing.T) {
	repo := gittest.New(t)
	want := repo.Push(t, "first", map[string]string{"file": "content"})
	secrets, err := variant(t, options(nil)).MakeSecrets(Given{}, time.Now())
	if err != nil || len(secrets) != 1 || secrets[0].Name != GitSecret {
		t.Fatalf("%d secrets, %v", len(secrets), err)
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(secrets[0].PublicKey()))
	if err != nil {
		t.Fatal(err)
	}
	server := repo.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
	auth := git.Auth{SSHKey: git.Secret(secrets[0].Data["id"]), KnownHostsFiles: []string{server.KnownHostsFile(t)}}
	if head, err := git.BranchHead(t.Context(), server.URL, "main", auth); head != want || err != nil {
		t.Errorf("%q, %v", head, err)
	}
	if _, err := variant(t, options(nil)).MakeSecrets(Given{DeployKey: "no key"}, time.Now()); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("a file that is no key: %v", err)
	}
}

// TestTheRepositoryOverHTTPIsChecked on a real server that asks for a user and a password: what the
// check says does not contain the password.
func TestTheRepositoryOverHTTPIsChecked(t *testing.T) {
	repo := gittest.New(t)
	repo.Push(t, "first", map[string]string{"file": "content"})
	server := repo.HTTP(t, gittest.HTTPOptions{Username: "ci", Password: "s3cret"})
	for _, c := range []struct {
		branch string
		access gitAccess
		level  Level
		text   string
		do     string
	}{
		{"main", gitAccess{username: "ci", password: "s3cret"}, OK, "branch main of ", ""},
		{"main", gitAccess{username: "ci", password: "s3cret2"}, Problem, "authentication failed", "password or token of user ci is valid"},
		{"main", gitAccess{}, Problem, "authentication failed", "give --git-username and --git-password-file"},
		{"next", gitAccess{username: "ci", password: "s3cret"}, Problem, "no branch", "create the branch"},
	} {
		f := checkGit(t.Context(), server.URL, c.branch, c.access)
		if f.Level != c.level || !strings.Contains(f.Text, c.text) || !strings.Contains(f.Do, c.do) || strings.Contains(f.Text+f.Do, "s3cret") {
			t.Errorf("branch %s as %q: %+v", c.branch, c.access.username, f)
		}
	}
	for remote, want := range map[string]bool{
		"http://git.example.com/apps": true, "http://10.0.0.1:3000/apps": true, "https://git.example.com/apps": false, "http://127.0.0.1:3000/apps": false, "http://[::1]/apps": false,
	} {
		if got := sentInClear(remote); got != want {
			t.Errorf("%s: unencrypted %v, want %v", remote, got, want)
		}
	}
}

// TestTheDatabaseGetsItsPassword: PostgreSQL's client reads the password that was given out of the
// file, whatever characters it and the names have.
func TestTheDatabaseGetsItsPassword(t *testing.T) {
	const password = `a:b\c d`
	v := variant(t, options(func(o *Options) { o.Postgres = "postgres://us%3Aer@db.example.com/da%3Ata?sslmode=disable" }))
	secrets, err := v.MakeSecrets(Given{Password: password}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pgpass")
	for _, s := range secrets {
		if s.Name == StoreSecret {
			if err := os.WriteFile(file, s.Data["pgpass"], 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	config, err := pgx.ParseConfig(strings.Replace(v.DSN, "/etc/piped-store/pgpass", url.QueryEscape(file), 1))
	if err != nil || config.Password != password {
		t.Errorf("%v, the password of %s is wrong", err, v.DSN)
	}
}

// TestTheCertificateIsThatOfTheService for a client that trusts it.
func TestTheCertificateIsThatOfTheService(t *testing.T) {
	v := variant(t, options(func(o *Options) { o.Namespace, o.Postgres = "gitops", "postgres://me@db/piped" }))
	secrets, err := v.MakeSecrets(Given{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets {
		if s.Name != TLSSecret {
			continue
		}
		pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		trusted := x509.NewCertPool()
		trusted.AddCert(pair.Leaf)
		for _, name := range []string{"piped.gitops.svc", "localhost"} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: name}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return
	}
	t.Errorf("there is no certificate")
}
