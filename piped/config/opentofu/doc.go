// Package opentofu holds what only applications of OpenTofu and Terraform say, and what their
// platform providers do. Both kinds have the same fields; they differ in the program.
package opentofu
