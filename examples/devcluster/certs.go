package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"
)

// authority signs the cluster's certificates. Its key is not kept: a folder
// gets its certificates once, and they outlive any use of it.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  time.Time
}

const certLifetime = 10 * 365 * 24 * time.Hour

// ensureCerts creates DIR/certs unless it is complete.
func ensureCerts(d dir, now time.Time) error {
	done := d.path("certs", "complete")
	if _, err := os.Stat(done); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for certificates: %w", err)
	}
	ca, err := newAuthority(d, now)
	if err != nil {
		return fmt.Errorf("creating the certificate authority: %w", err)
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP("10.96.0.1")},
	}
	if err := ca.issue(d, "server", server); err != nil {
		return fmt.Errorf("creating the server certificate: %w", err)
	}
	admin := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "devcluster-admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if err := ca.issue(d, "admin", admin); err != nil {
		return fmt.Errorf("creating the admin certificate: %w", err)
	}
	if err := writeServiceAccountKey(d); err != nil {
		return fmt.Errorf("creating the service account key: %w", err)
	}
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		return fmt.Errorf("keeping the certificates: %w", err)
	}
	return nil
}

func newAuthority(d dir, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "devcluster-ca"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(certLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, now: now}, writePEM(d.path("certs", "ca.crt"), "CERTIFICATE", der)
}

// issue signs template and writes certs/NAME.crt and certs/NAME.key.
func (a *authority) issue(d dir, name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.NotBefore, template.NotAfter = a.cert.NotBefore, a.cert.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(d.path("certs", name+".key"), "PRIVATE KEY", keyDER); err != nil {
		return err
	}
	return writePEM(d.path("certs", name+".crt"), "CERTIFICATE", der)
}

// writeServiceAccountKey writes the key pair that signs and checks tokens.
func writeServiceAccountKey(d dir) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	pub, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writePEM(d.path("certs", "sa.pub"), "PUBLIC KEY", pub); err != nil {
		return err
	}
	return writePEM(d.path("certs", "sa.key"), "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

func writePEM(file, kind string, der []byte) error {
	return writeFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
