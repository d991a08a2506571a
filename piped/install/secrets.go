package install

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/deploy"
)

// The names of the secrets, and of their keys.
const (
	GitSecret   = "piped-git"   // with SSH, or a user over HTTP
	StoreSecret = "piped-store" // with replicas
	TLSSecret   = "piped-tls"   // with replicas

	keyDeploy, keyHosts    = "id", "known_hosts"
	keyGitPassword         = "password"
	keyStore, keyPassword  = "key", "pgpass"
	certificateYears       = 10
	keyCertificate, keyTLS = corev1.TLSCertKey, corev1.TLSPrivateKeyKey
)

// Given are secrets that a user has. What is "" is generated, but for passwords.
type Given struct {
	GitPassword string // or token, of Options.GitUsername; "" leaves that of a Secret that exists
	DeployKey   string // a private key in PEM or OpenSSH form, without passphrase
	KnownHosts  string // lines for the repository's host; required with SSH
	// Keep leaves the known hosts of a Secret that exists.
	Keep     bool
	Password string // of the database
}

// Secret is a secret of the installation.
type Secret struct {
	Name string
	Type corev1.SecretType
	Data map[string][]byte
	// given are the keys of Data that the user has given: they replace those in the cluster.
	given []string

	variant Variant
}

// differs returns a key that live lacks, or that the user has given another value; "" if there is none.
func (s Secret) differs(live *corev1.Secret) string {
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		old, has := live.Data[key]
		if !has || slices.Contains(s.given, key) && !bytes.Equal(old, s.Data[key]) {
			return key
		}
	}
	return ""
}

// over returns the data of a secret that exists, with what the user has given and what it lacks.
func (s Secret) over(live *corev1.Secret) map[string][]byte {
	data := maps.Clone(s.Data)
	for key, old := range live.Data {
		if !slices.Contains(s.given, key) {
			data[key] = old
		}
	}
	if old, has := live.Data[keyPassword]; has && s.Name == StoreSecret && !slices.Contains(s.given, keyPassword) {
		// The line names the database, which may be another one now.
		data[keyPassword] = []byte(s.variant.passLine(passwordOf(string(old))))
	}
	return data
}

// object returns the secret as an object.
func (s Secret) object() *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.variant.Namespace, Labels: labels(s.variant.Namespace)},
		Type:       s.Type, Data: s.Data,
	}
}

// text returns the secret as a manifest.
func (s Secret) text() (string, error) {
	text, err := yaml.Marshal(s.object())
	return string(text), err
}

// MakeSecrets returns the secrets that the variant needs. Errors are of kind deploy.Invalid.
func (v Variant) MakeSecrets(given Given, now time.Time) (secrets []Secret, err error) {
	add := func(name string, kind corev1.SecretType, data map[string][]byte, given ...string) {
		secrets = append(secrets, Secret{Name: name, Type: kind, Data: data, given: given, variant: v})
	}
	if v.SSH {
		var own []string
		if !given.Keep {
			own = append(own, keyHosts)
		}
		key := []byte(given.DeployKey)
		if given.DeployKey != "" {
			own = append(own, keyDeploy)
		} else if key, err = newDeployKey(); err != nil {
			return nil, err
		}
		if _, err := PublicKey(key); err != nil {
			return nil, err
		}
		add(GitSecret, corev1.SecretTypeOpaque, map[string][]byte{keyDeploy: key, keyHosts: []byte(given.KnownHosts)}, own...)
	}
	if v.GitUsername != "" {
		data, own := map[string][]byte{}, []string(nil)
		if given.GitPassword != "" {
			data[keyGitPassword], own = []byte(given.GitPassword), []string{keyGitPassword}
		}
		add(GitSecret, corev1.SecretTypeOpaque, data, own...)
	}
	if !v.Replicated {
		return secrets, nil
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	data := map[string][]byte{keyStore: []byte(base64.StdEncoding.EncodeToString(key) + "\n")}
	var own []string
	if given.Password != "" {
		data[keyPassword], own = []byte(v.passLine(given.Password)), []string{keyPassword}
	}
	add(StoreSecret, corev1.SecretTypeOpaque, data, own...)
	certificate, private, err := newCertificate(v.Namespace, now)
	if err != nil {
		return nil, err
	}
	add(TLSSecret, corev1.SecretTypeTLS, map[string][]byte{keyCertificate: certificate, keyTLS: private})
	return secrets, nil
}

// newDeployKey returns a new private key in OpenSSH form.
func newDeployKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "piped")
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(block), nil
}

// PublicKey returns the public half of a private key, in the form of a line that Git hosts take.
// The error is of kind deploy.Invalid.
func PublicKey(private []byte) (string, error) {
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil { // it does not contain the key
		return "", deploy.Errorf(deploy.Invalid, "the deploy key is no private key in PEM or OpenSSH form without a passphrase: %w", err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))) + " piped", nil
}

// passLine returns the line of the password file that libpq's clients read.
func (v Variant) passLine(password string) string {
	dsn, err := url.Parse(v.Postgres)
	if err != nil {
		return "" // NewVariant has parsed it
	}
	escape := strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace
	fields := []string{escape(dsn.Hostname()), cmp.Or(dsn.Port(), "5432"), escape(strings.Trim(dsn.Path, "/")), escape(dsn.User.Username()), escape(password)}
	return strings.Join(fields, ":") + "\n"
}

// newCertificate returns a self-signed certificate of the Service, and its key. The replicas need
// one to answer beyond loopback; they do not verify each other by it.
func newCertificate(namespace string, now time.Time) (certificate, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	name := "piped." + namespace + ".svc"
	made := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "piped"},
		DNSNames:  []string{"piped", "piped." + namespace, name, name + ".cluster.local", "localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(certificateYears, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, made, made, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

// PublicKey returns the public half of the deploy key, "" for other secrets.
func (s Secret) PublicKey() string {
	if s.Name != GitSecret || !s.variant.SSH {
		return ""
	}
	public, err := PublicKey(s.Data[keyDeploy])
	if err != nil {
		return "" // MakeSecrets has read it
	}
	return public
}
