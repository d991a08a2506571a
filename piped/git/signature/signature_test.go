package signature_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/git/signature"
)

var day = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// object returns a commit object that was made at a time, with other headers.
func object(at time.Time, headers ...string) string {
	return "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n" +
		"parent 89e4a3d1c2b5f60718293a4b5c6d7e8f90a1b2c3\nparent 1111111111111111111111111111111111111111\n" +
		"author A U Thor <author@example.com> 1000000000 +0100\n" +
		fmt.Sprintf("committer C O Mitter <committer@example.com> %d +0000\n", at.Unix()) +
		strings.Join(headers, "") + "\nA subject\n\n body with a line that is indented\n"
}

// header writes a signature as git does.
func header(name, armored string) string {
	return name + " " + strings.ReplaceAll(strings.TrimRight(armored, "\n"), "\n", "\n ") + "\n"
}

// with puts headers in front of an object's message.
func with(object string, headers ...string) string {
	head, message, _ := strings.Cut(object, "\n\n")
	return head + "\n" + strings.Join(headers, "") + "\n" + message
}

func signed(t *testing.T, object string, by gittest.Signer) string {
	t.Helper()
	return with(object, header("gpgsig", armor(t, object, by)))
}

func armor(t *testing.T, object string, by gittest.Signer) string {
	t.Helper()
	armored, err := by.Sign([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	return armored
}

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

// load reads keys, and fails the test if it cannot.
func load(t *testing.T, openPGP, ssh []gittest.Signer) *signature.Keys {
	t.Helper()
	k, err := signature.Load([]string{gittest.KeyFile(t, openPGP...)}, []string{gittest.KeyFile(t, ssh...)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestVerify(t *testing.T) {
	const year = 365 * 24 * time.Hour
	pgp := gittest.NewOpenPGPSigner(t, "alice", day.Add(-year), 0, at(day.Add(time.Second)))
	brief := gittest.NewOpenPGPSigner(t, "bob", day.Add(-year), 2*year, at(day))
	pgpStranger := gittest.NewOpenPGPSigner(t, "mallory", day.Add(-year), 0, at(day))
	revoked, err := openpgp.NewEntity("carol", "", "carol@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: at(day.Add(-year))})
	if err != nil {
		t.Fatal(err)
	}
	revokedSigner := gittest.OpenPGPSigner(t, revoked, at(day))
	signedBefore := signed(t, object(day), revokedSigner)
	if err := revoked.RevokeKey(packet.KeyRetired, "left", &packet.Config{Time: at(day.Add(year))}); err != nil {
		t.Fatal(err)
	}
	revokedSigner = gittest.OpenPGPSigner(t, revoked, at(day))

	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed, stranger := gittest.NewSSHSigner(t, "dave@laptop"), gittest.NewSSHSigner(t, "mallory")
	rsaSigner, ecdsaSigner := gittest.SSHSigner(t, "erin", rsaKey), gittest.SSHSigner(t, "frank", ecdsaKey)
	limited := gittest.NewSSHSigner(t, "")
	limited.Public = "grace@example.com namespaces=\"git\",valid-after=\"20260101Z\",valid-before=\"20260701Z\" " + limited.Public
	forFiles, err := ssh.NewSignerFromKey(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	fileSignature, err := gittest.SignSSH(forFiles, "file", []byte(object(day)))
	if err != nil {
		t.Fatal(err)
	}
	keys := load(t, []gittest.Signer{pgp, brief, revokedSigner}, []gittest.Signer{ed, rsaSigner, ecdsaSigner, limited})

	plain, tampered := object(day), strings.Replace(object(day), "body", "Body", 1)
	for name, c := range map[string]struct {
		object string
		signer string // part of what is returned
		err    string // part of it; "" for none
	}{
		"unsigned":                            {object: plain, err: "it is not signed"},
		"OpenPGP":                             {object: signed(t, plain, pgp), signer: "alice <alice@example.com> (OpenPGP key "},
		"OpenPGP of another key":              {object: signed(t, plain, pgpStranger), err: "is not one of those given"},
		"OpenPGP over another commit":         {object: with(tampered, header("gpgsig", armor(t, plain, pgp))), err: "does not verify"},
		"OpenPGP before its key expires":      {object: signed(t, plain, brief), signer: "bob"},
		"OpenPGP after its key has expired":   {object: signed(t, object(day.Add(2*year)), brief), err: "was not valid at 2028-03-13"},
		"OpenPGP before its key was revoked":  {object: signedBefore, err: "was revoked"},
		"OpenPGP with two signatures":         {object: with(plain, header("gpgsig", armor(t, plain, pgp)+armor(t, plain, brief))), err: "several signatures"},
		"two headers":                         {object: with(plain, header("gpgsig", armor(t, plain, pgpStranger)), header("gpgsig", armor(t, plain, pgp))), err: "several signatures"},
		"OpenPGP that is cut":                 {object: with(plain, header("gpgsig", armor(t, plain, pgp)[:120])), err: "cannot be read"},
		"SSH with Ed25519":                    {object: signed(t, plain, ed), signer: "dave@laptop (SSH key SHA256:"},
		"SSH with RSA":                        {object: signed(t, plain, rsaSigner), signer: "erin"},
		"SSH with ECDSA":                      {object: signed(t, plain, ecdsaSigner), signer: "frank"},
		"SSH of another key":                  {object: signed(t, plain, stranger), err: "is not one of those given"},
		"SSH over another commit":             {object: with(tampered, header("gpgsig", armor(t, plain, ed))), err: "does not verify"},
		"SSH with two signatures":             {object: with(plain, header("gpgsig", armor(t, plain, ed)+armor(t, plain, rsaSigner))), err: "several signatures"},
		"SSH for files":                       {object: with(plain, header("gpgsig", fileSignature)), err: "namespace does not match"},
		"SSH within the time of its key":      {object: signed(t, plain, limited), signer: "grace@example.com"},
		"SSH before the time of its key":      {object: signed(t, object(day.Add(-year)), limited), err: "was not valid at 2025-03-14"},
		"SSH after the time of its key":       {object: signed(t, object(day.Add(year)), limited), err: "was not valid at 2027-03-14"},
		"X.509":                               {object: with(plain, header("gpgsig", "-----BEGIN SIGNED MESSAGE-----\nx\n-----END SIGNED MESSAGE-----")), err: "neither one of OpenPGP nor one of SSH"},
		"a signature in the message":          {object: plain + "\n" + header("gpgsig", armor(t, plain, ed)), err: "it is not signed"},
		"a signature of the other hash":       {object: with(signed(t, plain, ed), header("gpgsig-sha256", armor(t, plain, stranger))), signer: "dave"},
		"only a signature of the other hash":  {object: with(plain, header("gpgsig-sha256", armor(t, plain, ed))), err: "it is not signed"},
		"a signed tag that was merged":        {object: object(day, "mergetag object 89e4\n type commit\n "+strings.ReplaceAll(armor(t, plain, ed), "\n", "\n ")+"\n"), err: "it is not signed"},
		"a merge of a signed tag, signed too": {object: signed(t, object(day, "mergetag object 89e4\n type commit\n tagger T <t@x> 1 +0000\n"), ed), signer: "dave"},
		"unknown headers":                     {object: signed(t, object(day, "encoding ISO-8859-1\n", "x-more a\n b\n"), pgp), signer: "alice"},
		"no time":                             {object: "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\nmessage\n", err: "does not say when"},
		"two committers": {
			object: signed(t, object(day, "committer B <b@x> 1 +0000\n"), ed), err: "is not one",
		},
		"nothing": {object: "", err: "does not say when"},
	} {
		t.Run(name, func(t *testing.T) {
			signer, err := keys.Verify([]byte(c.object))
			if c.err == "" && (err != nil || !strings.Contains(signer, c.signer)) {
				t.Fatalf("got %q, %v; want a signer with %q", signer, err, c.signer)
			}
			if c.err != "" && (!deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.err) || signer != "") {
				t.Errorf("got %q, %v (%v); want an invalid commit because %q", signer, err, deploy.KindOf(err), c.err)
			}
		})
	}
}

// TestTamperedObjects changes each byte of signed commits: none of them verifies
// any more, unless git ignores the byte, too.
func TestTamperedObjects(t *testing.T) {
	pgp, ed := gittest.NewOpenPGPSigner(t, "alice", day, 0, at(day)), gittest.NewSSHSigner(t, "dave")
	keys := load(t, []gittest.Signer{pgp}, []gittest.Signer{ed})
	for _, by := range []gittest.Signer{pgp, ed} {
		whole := signed(t, object(day), by)
		sigBegin, sigEnd := strings.Index(whole, "gpgsig "), strings.Index(whole, "\n\nA subject")
		for i := range whole {
			if i >= sigBegin && i <= sigEnd {
				continue // armor has bytes without meaning
			}
			changed := []byte(whole)
			changed[i] ^= 1
			if signer, err := keys.Verify(changed); err == nil {
				t.Errorf("byte %d (%q) was changed, and the commit is one of %s", i, whole[i], signer)
			}
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	ed, pgp := gittest.NewSSHSigner(t, "dave"), gittest.NewOpenPGPSigner(t, "alice", day, 0, at(day))
	for name, c := range map[string]struct {
		openPGP, ssh, err string
	}{
		"no keys of OpenPGP":              {openPGP: " \n", err: "no key that can be used"},
		"text in place of OpenPGP":        {openPGP: "alice\n", err: "expected public keys"},
		"SSH in place of OpenPGP":         {openPGP: ed.Public, err: "expected public keys"},
		"a private key":                   {openPGP: "-----BEGIN PGP PRIVATE KEY BLOCK-----\n", err: "private key"},
		"no keys of SSH":                  {ssh: "# nobody\n\n", err: "no key that may sign commits"},
		"keys for another purpose":        {ssh: `a@x namespaces="file" ` + ed.Public, err: "no key that may sign commits"},
		"OpenPGP in place of SSH":         {ssh: pgp.Public, err: "line 1"},
		"a line that is none":             {ssh: ed.Public + "dave\n", err: "line 2: expected"},
		"a key that is cut":               {ssh: ed.Public[:40], err: "line 1: read the key"},
		"a certificate authority":         {ssh: "*@x cert-authority " + ed.Public, err: "certificates are not supported"},
		"an authority in authorized_keys": {ssh: "cert-authority " + ed.Public, err: "option of authorized_keys"},
		"an expiry of authorized_keys":    {ssh: `expiry-time="20200101" ` + ed.Public, err: "option of authorized_keys"},
		"an option that is unknown":       {ssh: "a@x valid-from=20200101 " + ed.Public, err: "none of namespaces"},
		"a time that is none":             {ssh: "a@x valid-before=soon " + ed.Public, err: "expected a time"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "keys")
			if err := os.WriteFile(file, []byte(c.openPGP+c.ssh), 0o600); err != nil {
				t.Fatal(err)
			}
			var openPGP, ssh []string
			if c.openPGP != "" {
				openPGP = []string{file}
			} else {
				ssh = []string{file}
			}
			_, err := signature.Load(openPGP, ssh)
			if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v (%v), want an error with the file and %q", err, deploy.KindOf(err), c.err)
			}
		})
	}
	if _, err := signature.Load(nil, []string{filepath.Join(t.TempDir(), "missing")}); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("a missing file: got %v", err)
	}
}

func TestEqual(t *testing.T) {
	one, two := gittest.KeyFile(t, gittest.NewSSHSigner(t, "a")), gittest.KeyFile(t, gittest.NewSSHSigner(t, "a"))
	read := func(files ...string) *signature.Keys {
		t.Helper()
		k, err := signature.Load(nil, files)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if !read(one).Equal(read(one)) || read(one).Equal(read(two)) || read(one).Equal(nil) || read(one, two).Equal(read(one)) {
		t.Error("keys are not equal exactly when their files are")
	}
}

func FuzzVerify(f *testing.F) {
	pgp, ed := gittest.NewOpenPGPSigner(f, "alice", day, 0, at(day)), gittest.NewSSHSigner(f, "dave")
	keys, err := signature.Load([]string{gittest.KeyFile(f, pgp)}, []string{gittest.KeyFile(f, ed)})
	if err != nil {
		f.Fatal(err)
	}
	for _, by := range []gittest.Signer{pgp, ed} {
		armored, err := by.Sign([]byte(object(day)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(with(object(day), header("gpgsig", armored))))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if signer, err := keys.Verify(data); (err == nil) != (signer != "") || err != nil && strings.Contains(err.Error(), "internal error") {
			t.Errorf("got %q, %v", signer, err)
		}
	})
}
