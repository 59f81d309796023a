// Package certificates issues and rotates the certificate of the conversion webhook, and makes the API server trust
// it, without cert-manager.
//
// Certificates are self-signed and trusted as they are: no authority exists whose key could be stolen. They are in the
// Secret [SecretName], which every replica watches and serves from memory. A rotation never breaks a connection: the
// next certificate is first published in the CA bundle of the CustomResourceDefinitions, and served only later, while
// the bundle still has the previous one.
//
// Every replica may issue a certificate, not only the leader: after an upgrade, the caches of a replica need the
// conversion webhook to sync, and without caches no replica becomes the leader. Writes carry the resourceVersion that
// they follow from, so that of two replicas one wins, and the other serves what that one issued.
package certificates
